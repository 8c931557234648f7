//go:build !darwin

package listen

import "net"

func fromLaunchd(string) ([]net.Listener, error) { return nil, ErrNotInherited }
