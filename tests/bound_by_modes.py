"""root is bound by no file mode, and tests often run as root: how is a child process bound all the same?"""

import os
import shutil

import pytest


def prefix() -> list[str]:
    """Return the words to put before a command so that modes bind it; skip the test where there is no way."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root, and no setpriv to give up the right to pass over file modes")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]
