package metal

// device runs dispatches on one GPU.
type device struct{}
