// Package terminal is what the command draws in a terminal and reads from one: the
// window at work, lines over lines, and messages with an editor.
package terminal
