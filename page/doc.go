// Package page has the server's web page: a chat, and the window at work. Its HTML, CSS
// and scripts are embedded as they were written; docs/page.md says what is on it.
package page
