package units

import "testing"

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1 KiB", 28336376: "27 MiB", 16381470720: "15.3 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0.000", 0.12345: "0.123", 1.2345: "1.23", -12.345: "-12.3", 200.4: "200"} {
		if got := Digits(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
