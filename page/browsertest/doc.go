// Package browsertest drives the server's page with a headless Chromium: its tests start
// the real binary. It is a module of its own, so that the program does not depend on
// what drives a browser. Run it by make browser-test.
package browsertest
