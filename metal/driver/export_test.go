package driver

// SelectorNames and ClassNames are the tables, for tests.
var (
	SelectorNames = selectorNames
	ClassNames    = classNames
)
