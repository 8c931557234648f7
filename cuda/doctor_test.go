package cuda

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"windrow/backend/doctor"
	"windrow/cuda/driver"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
)

// withSelfTests runs a test with self-tests of its own.
func withSelfTests(t *testing.T, tests ...launch.SelfTest) {
	t.Helper()
	kept := selfTests
	selfTests = tests
	t.Cleanup(func() { selfTests = kept })
}

func TestDoctorFailures(t *testing.T) {
	var left driver.Ptr
	withSelfTests(t,
		launch.SelfTest{Name: "t panics", Run: func(*launch.Device) error { panic("a panic") }},
		launch.SelfTest{Name: "t leaves an error", Run: func(d *launch.Device) error {
			d.RowStats(0, 0, 1, 1, 0, 0, 0) // of no candidates
			var err error
			left, err = d.Context.Alloc(100)
			return err
		}},
		launch.SelfTest{Name: "t begins anew", Run: func(d *launch.Device) error {
			if d.Take() != nil || d.Context.Allocated() != 0 || left == 0 {
				return errors.New("the device of a failed test")
			}
			return nil
		}},
		launch.SelfTest{Name: "not asked for", Run: func(*launch.Device) error { return errors.New("run") }},
	)
	t.Setenv("WINDROW_EMULATED_CC", "8.0")
	var reported []doctor.Check
	checks, err := Doctor(emulator.Library(t, false), "", doctor.Options{
		Only:   regexp.MustCompile("^t |device copy"),
		Report: func(c doctor.Check) { reported = append(reported, c) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(reported) != len(checks) {
		t.Errorf("%d checks reported of %d", len(reported), len(checks))
	}
	var got []string
	for _, c := range checks {
		got = append(got, c.Status+" "+c.Name)
	}
	want := " driver, device 0,ok context, cuBLASLt,FAIL t panics,FAIL t leaves an error,ok t begins anew,ok device copy, NCCL"
	if strings.Join(got, ",") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ","), want)
	}
	for i, words := range map[int]string{1: "compute capability 8.0", 2: "GiB free of", 4: "a panic", 5: "0 candidates a row", 7: "read and written"} {
		if i < len(checks) && !strings.Contains(checks[i].Detail, words) {
			t.Errorf("%s: %q does not say %q", checks[i].Name, checks[i].Detail, words)
		}
	}
	if copied := checks[len(checks)-2]; copied.Rate <= 0 {
		t.Errorf("the copy's rate is %v", copied.Rate)
	}
}

// A check that does not end is failed, and the doctor comes back.
func TestDoctorPatience(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	withSelfTests(t, launch.SelfTest{Name: "endless", Run: func(*launch.Device) error { <-end; return nil }}, launch.SelfTest{Name: "behind", Run: func(*launch.Device) error { return nil }})
	checks, err := Doctor(emulator.Library(t, false), "", doctor.Options{Only: regexp.MustCompile("endless|behind"), Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	last := checks[len(checks)-1]
	if last.Name != "endless" || last.Status != doctor.StatusFailed || !strings.Contains(last.Detail, "no end after 2s") {
		t.Errorf("last check: %+v", last)
	}
}

func TestDriverRelease(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12": "550.54.15",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)":         "580.65.06",
		"NVRM version: something else": "",
		"":                             "",
	} {
		if got := releaseOf(text); got != want {
			t.Errorf("release %q, want %q", got, want)
		}
	}
}
