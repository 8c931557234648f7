// Package memory says how much memory this process may use.
package memory

// Total is how many bytes of memory the machine has, or, where it is less, how many
// this process's control group may use; 0 where nobody says.
func Total() int64 { return total() }
