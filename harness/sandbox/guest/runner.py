"""What the guest's interpreter is started with. The rest is a module, whose bytecode is kept: a program's is not."""

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # the little garbage of imports is not worth a look; back on before it says that it is ready
    sys.path.insert(0, __file__.rpartition("/")[0])
    from arena_sdk import _runner

    _runner.main()
