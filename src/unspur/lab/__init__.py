"""Everything with files, networks and clocks: data sets, reports, the command line. The core never imports it."""
