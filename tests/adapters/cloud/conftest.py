"""botocore's releases for Python 3.9 want urllib3 1, and moto none of them: AWS is tested from Python 3.10 on."""

import sys

collect_ignore_glob = ["test_aws*.py"] if sys.version_info < (3, 10) else []
