package backend

// Launched is when a kernel ran on a device, in seconds from when the first one of all began.
type Launched struct {
	Name    string `json:"name"`
	Blocks  int    `json:"blocks"`
	Threads int    `json:"threads"` // of a block
	// Begun is when its first block began, and Half when half of the warps had.
	Begun float64 `json:"begun"`
	Half  float64 `json:"half"`
	// Ready is when the last warp had done what needs nothing of the kernel before, and
	// Released when the first one saw that this had ended.
	Ready    float64 `json:"ready"`
	Released float64 `json:"released"`
	// First and Last are when the first and the last warp ended, and Middle when half of
	// them had.
	First  float64 `json:"first"`
	Middle float64 `json:"middle"`
	Last   float64 `json:"last"`
}

// Timed is a Backend whose kernels tell when they run.
type Timed interface {
	// Timeline runs something, and returns its launches in the order in which they were
	// released. That they tell takes some time.
	Timeline(run func() error) ([]Launched, error)
}
