// Package session keeps the keys and values of conversations on disk, so that one goes
// on after a restart without computing them again. It knows nothing of models: a page is
// some bytes for some tokens.
//
//	FOLDER/segments/HASH.wkv     up to 16 pages, behind a header that says whose they are
//	FOLDER/sessions/HASH.json    the tokens of a session, and the segments that it has
//
// A segment's name is a SHA-256 chain over what names the arithmetic (Options), the salt,
// and all tokens up to the segment's end. So a segment never changes, sessions that begin
// alike share it, and what is found for a prompt is what was computed for these tokens
// and no others. A session is there when its file is, which is written beside and
// renamed after all its segments are durable: a process that is killed at any instant
// leaves the session as it was before or as it is after.
//
// What is read is checked: lengths, hashes, a CRC of each page. Where anything is wrong
// the session is dropped, with one line to Options.Note, and is as good as never saved.
package session
