"""What every test shares: no core files from the crashes that tests provoke."""

import resource

resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
