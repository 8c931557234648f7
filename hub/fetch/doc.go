// Package fetch brings models into the cache of package hub: from the Hub or a mirror of
// it, from another Windrow, from a URL, from a folder. A file comes in pieces over several
// connections, with a journal of what is there, and is hashed as its beginning grows;
// nothing that was not verified becomes a blob. It is the one package that opens
// connections to strangers, and only when it is asked to.
package fetch
