package hub

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scheme begins the name of a model on the Hub.
const Scheme = "hf:"

// DefaultRevision is the branch that a name means which says none.
const DefaultRevision = "main"

// Name is a model on the Hub: hf:ORG/NAME[@REVISION][:FILE|:TAG].
type Name struct {
	// Repo is ORG/NAME, or NAME alone for some old ones.
	Repo string
	// Revision is a branch, a tag, or a commit; never empty.
	Revision string
	// File is a .gguf file of the repository, or a word of its name such as Q4_K_M; ""
	// where the name says none.
	File string
}

// IsName reports whether a model's path is such a name.
func IsName(s string) bool { return strings.HasPrefix(s, Scheme) }

// maxRepo is the Hub's own bound on ORG/NAME, in bytes; maxPart is what file systems
// take as one part of a path.
const (
	maxRepo = 96
	maxPart = 255
)

var (
	// Each part begins and ends with a letter, a digit or '_', as the Hub's own check has it: else the folders of
	// a-/b and a/-b would have one name.
	repoForm = regexp.MustCompile(`^\w([\w.-]*\w)?(/\w([\w.-]*\w)?)?$`)
	tagForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// ParseName reads a name, with or without its scheme.
func ParseName(s string) (Name, error) {
	n := Name{Revision: DefaultRevision}
	rest := strings.TrimPrefix(s, Scheme)
	bad := func(what, found, want string) (Name, error) {
		return Name{}, fmt.Errorf("model name %s: %s %s: want %s", shown(s), what, shown(found), want)
	}
	var hasFile, hasRevision bool
	rest, n.File, hasFile = strings.Cut(rest, ":")
	if n.Repo, rest, hasRevision = strings.Cut(rest, "@"); hasRevision {
		n.Revision = rest
	}
	if err := CheckRepo(n.Repo); err != nil {
		return Name{}, fmt.Errorf("model name %s: %w", shown(s), err)
	}
	if !goodRevision(n.Revision) {
		return bad("revision", n.Revision, "a branch, a tag or a commit")
	}
	if isFile := isGGUF(n.File); hasFile && (isFile && CheckPath(n.File) != nil || !isFile && !tagForm.MatchString(n.File)) {
		return bad("file", n.File, "a .gguf file of the repository, or a word of its name such as Q4_K_M")
	}
	return n, nil
}

// CheckRepo checks ORG/NAME by the Hub's own rules.
func CheckRepo(repo string) error {
	if len(repo) > maxRepo || !repoForm.MatchString(repo) || strings.Contains(repo, "..") || strings.Contains(repo, "--") ||
		strings.HasSuffix(repo, ".git") {
		return fmt.Errorf("repository %s: want ORG/NAME of letters, digits, '.', '_' and '-', at most %d", shown(repo), maxRepo)
	}
	return nil
}

// goodRevision reports whether git could have a branch of that name, and a file system a
// file.
func goodRevision(s string) bool {
	if s == "" || len(s) > maxPart || strings.Contains(s, "..") || strings.Contains(s, "@{") {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part[0] == '.' || part[0] == '-' || strings.HasSuffix(part, ".lock") || strings.HasSuffix(part, ".") {
			return false
		}
	}
	for _, r := range s {
		if !strconv.IsPrint(r) || strings.ContainsRune(` \:*?[~^<>|"`, r) {
			return false
		}
	}
	return true
}

// CheckPath checks the path of a file within a repository: that it is relative, stays
// inside, and can be written on every platform.
func CheckPath(p string) error {
	if err := checkInside(p); err != nil {
		return err
	}
	for _, r := range p {
		if !strconv.IsPrint(r) || strings.ContainsRune(`:*?<>|"`, r) {
			return badPath(p, `none of \ : * ? < > | " and no control characters`)
		}
	}
	for part := range strings.SplitSeq(p, "/") {
		stem, _, _ := strings.Cut(strings.ToUpper(part), ".")
		switch {
		case strings.HasSuffix(part, ".") || strings.HasSuffix(part, " "):
			return badPath(p, "no part that ends in a dot or a space")
		case reservedForm.MatchString(strings.TrimSpace(stem)):
			return badPath(p, "no name that Windows keeps for devices")
		}
	}
	return nil
}

func badPath(p, want string) error { return fmt.Errorf("file name %s: want %s", shown(p), want) }

// checkInside checks of a path what git and the Hub check, too: that it is relative and
// stays inside.
func checkInside(p string) error {
	if p == "" || len(p) > 1024 || path.IsAbs(p) {
		return badPath(p, "a relative path of at most 1024 bytes")
	}
	if !utf8.ValidString(p) || strings.Contains(p, `\`) || strings.ContainsFunc(p, unicode.IsControl) {
		return badPath(p, `no \ and no control characters`)
	}
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "" || part == "." || part == "..":
			return badPath(p, "parts that are not empty, . or ..")
		case len(part) > maxPart:
			return badPath(p, fmt.Sprintf("at most %d bytes a part", maxPart))
		}
	}
	return nil
}

var reservedForm = regexp.MustCompile(`^(CON|PRN|AUX|NUL|COM[0-9]|LPT[0-9])$`)

// shown quotes what a stranger may have written, and no more of it than says what it is.
func shown(s string) string {
	if len(s) > 80 {
		return fmt.Sprintf("%.80q… (%d bytes)", s, len(s))
	}
	return strconv.Quote(s)
}

// String is the name as it is typed.
func (n Name) String() string {
	s := Scheme + n.Repo
	if n.Revision != DefaultRevision && n.Revision != "" {
		s += "@" + n.Revision
	}
	if n.File != "" {
		s += ":" + n.File
	}
	return s
}

// Short is what the model is called among others: its repository's last part, and the
// file.
func (n Name) Short() string {
	s := path.Base(n.Repo)
	if n.File != "" {
		s += ":" + path.Base(n.File)
	}
	return s
}

// Folder is the name of a repository's folder in the cache: models--ORG--NAME.
func Folder(repo string) string { return folderPrefix + strings.ReplaceAll(repo, "/", "--") }

const folderPrefix = "models--"

// repoOf is the repository of a folder's name.
func repoOf(folder string) (repo string, ok bool) {
	rest, ok := strings.CutPrefix(folder, folderPrefix)
	repo = strings.Replace(rest, "--", "/", 1)
	return repo, ok && CheckRepo(repo) == nil
}

// IsCommit reports whether a revision is a commit: 40 hexadecimal digits.
func IsCommit(s string) bool { return len(s) == 40 && Digest(s).Valid() }
