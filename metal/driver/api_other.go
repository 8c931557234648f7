//go:build !darwin

package driver

import "errors"

// Open binds the Objective-C runtime and Metal.
func Open() (*Runtime, error) { return nil, errors.New("metal: this is not macOS") }
