// Wide tables scroll by themselves: the keyboard has to reach them.
"use strict";
const reach = () => { for (const one of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) one.tabIndex = 0; };
new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
