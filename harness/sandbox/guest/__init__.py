"""What enters a jail: the runner, the agents' SDK and the self-test agent. Standard library only, nothing imported
from the other rooms: these files are copied into the guest root and run there under the guest's own Python.
"""
