package hub

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

func isGGUF(p string) bool { return strings.HasSuffix(strings.ToLower(p), ".gguf") }

var splitForm = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})(\.[gG][gG][uU][fF])$`)

// ggufGroups parts the .gguf files among paths into models: one file, or the parts of a
// split one in their order. Projectors of images (mmproj) are no models.
func ggufGroups(paths []string) (groups [][]string) {
	byName := map[string][]string{}
	for _, p := range paths {
		if !isGGUF(p) || strings.HasPrefix(strings.ToLower(path.Base(p)), "mmproj") {
			continue
		}
		name := p
		if m := splitForm.FindStringSubmatch(p); m != nil {
			name = m[1] + "-of-" + m[3] + m[4]
		}
		byName[name] = append(byName[name], p)
	}
	for _, g := range byName {
		slices.Sort(g)
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return groups
}

// hasWord reports whether a file's name has tag as a whole word, whatever the case: Q4_K
// is none in Q4_K_M.
func hasWord(name, tag string) bool {
	name, tag = strings.ToLower(name), strings.ToLower(tag)
	inWord := func(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	for from := 0; ; {
		i := strings.Index(name[from:], tag)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(tag)
		if (i == 0 || !inWord(name[i-1])) && (end == len(name) || !inWord(name[end])) {
			return true
		}
		from = i + 1
	}
}

// PickGGUF chooses among the .gguf files of paths: the one that want is the path of, or
// has as a word in its name; the only one where want is "". A split file's parts are
// returned together, the first one first.
func PickGGUF(paths []string, want string) ([]string, error) {
	groups := ggufGroups(paths)
	var found [][]string
	for _, g := range groups {
		switch {
		case slices.Contains(g, want):
			return g, nil
		case want == "" || !isGGUF(want) && hasWord(path.Base(g[0]), want):
			found = append(found, g)
		}
	}
	what := "the repository has no .gguf file"
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1 && want == "":
		what = "the repository has several models"
	case len(found) > 1:
		what = fmt.Sprintf("%s is in the names of several models", want)
		groups = found
	case want != "" && len(groups) > 0:
		what = fmt.Sprintf("no .gguf file is or has in its name %s", shown(want))
	}
	const most = 12
	var names []string
	for i, g := range groups {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(groups)-most))
			break
		}
		names = append(names, g[0])
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s", what)
	}
	return nil, fmt.Errorf("%s: want one of %s", what, strings.Join(names, ", "))
}
