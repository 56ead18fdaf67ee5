"""``python -m tests.disasters --write-docs`` writes the page of the docs; without the option the page is printed."""

import sys

from tests.disasters.page import PAGE, page

if "--write-docs" in sys.argv[1:]:
    PAGE.write_text(page())
else:
    print(page())
