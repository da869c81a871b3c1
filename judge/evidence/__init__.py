"""What a trace's own words have to hold before a judge may let a gate pass: data that tools returned."""
