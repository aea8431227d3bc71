"""One page that holds a whole run or experiment: no network, no script, no font of its own."""
