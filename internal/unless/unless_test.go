package unless

import (
	"context"
	"errors"
	"testing"
)

func TestCancelled(t *testing.T) {
	discarded := make(chan int, 1)
	discard := func(n int) { discarded <- n }
	bad := errors.New("bad")
	if n, err := Cancelled(t.Context(), func() (int, error) { return 7, nil }, discard); n != 7 || err != nil {
		t.Errorf("work that ends: %d, %v", n, err)
	}
	if _, err := Cancelled(t.Context(), func() (int, error) { return 7, bad }, discard); !errors.Is(err, bad) {
		t.Errorf("work that fails: %v", err)
	}
	if len(discarded) > 0 {
		t.Error("what was returned was discarded, too")
	}
	ctx, cancel := context.WithCancel(t.Context())
	began, goOn := make(chan struct{}), make(chan struct{})
	go func() { <-began; cancel() }()
	n, err := Cancelled(ctx, func() (int, error) { close(began); <-goOn; return 8, nil }, discard)
	if n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %d, %v", n, err)
	}
	close(goOn)
	if n := <-discarded; n != 8 {
		t.Errorf("discarded %d, want 8", n)
	}
	if _, err := Cancelled(ctx, func() (int, error) { t.Error("work ran after its context had ended"); return 0, nil }, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}
