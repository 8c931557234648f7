package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"windrow/decoder"
	"windrow/engine"
	"windrow/synthetic"
)

// wordsOfFlags are the values that a flag is known to take, by its name; "COMMAND --flag"
// goes before the flag of any command.
var wordsOfFlags = map[string][]string{
	"backend":           {engine.Auto, engine.CPU, engine.CUDA, engine.Metal},
	"doctor backend":    {engine.CUDA, engine.Metal, backendAll},
	"mode":              {modeAuto, string(decoder.AR), string(decoder.Verified), string(decoder.WeDLM)},
	"window":            {modeAuto},
	"entropy-threshold": {"none"},
	"kv-dtype":          {"f32", "f16", "bf16", "int8"},
	"shape":             synthetic.ShapeNames(),
	"dtype":             {"bf16", "f16", "f32", "affine4", "affine8", "q8_0", "q6_k", "q5_k", "q4_k", "q4_0"},
	"data":              {"gsm8k", "tinygsm"},
	"pcache data":       {"mixed"},
	"bits":              {"4", "8"},
	"group":             {"32", "64", "128"},
	"policy":            {"selective", "all"},
	"generate server":   {serverAuto, serverOff, "unix:"},
	"chat server":       {serverAuto, serverOff, "unix:"},
	"server":            {"unix:"},
	"listen":            {"unix:", "fd:"},
	"session-dir":       {"none"},
	"draft":             {"auto", "mask", "lookup", string(decoder.DraftMTP), draftModel, "none"},
	"draft-backend":     {engine.Auto, engine.CPU, engine.CUDA, engine.Metal},
}

// flagValues are a flag's values: models, words of a table, and paths where the flag's
// placeholder says so.
func flagValues(command *cli.Command, f cli.Flag, current string) (c completion) {
	name := f.Names()[0]
	if name == "model" {
		prefix := ""
		if strings.Contains(placeholder(f), "NAME=") {
			given, _, named := strings.Cut(current, "=")
			if named {
				prefix = given + "="
			}
		}
		c = models(strings.TrimPrefix(current, prefix))
		for i := range c.candidates {
			c.candidates[i].word = prefix + c.candidates[i].word
		}
		return c
	}
	words, ok := wordsOfFlags[command.Name+" "+name]
	if !ok {
		words = wordsOfFlags[name]
	}
	for _, word := range words {
		c.candidates = append(c.candidates, candidate{word: word})
	}
	switch placeholder(f) {
	case "PATH", "FILE":
		c.paths = files
	case "FOLDER":
		c.paths = folders
	}
	return c
}

// placeholder is what a flag's usage calls its value: the text in backquotes.
func placeholder(f cli.Flag) string {
	if doc, ok := f.(cli.DocGenerationFlag); ok {
		if parts := strings.Split(doc.GetUsage(), "`"); len(parts) == 3 {
			return parts[1]
		}
	}
	return ""
}

// argumentValues are the values of a command's arguments, by what its usage calls them.
func argumentValues(command *cli.Command) (c completion) {
	if command == nil {
		return c
	}
	for name := range strings.FieldsFuncSeq(command.ArgsUsage, func(r rune) bool { return strings.ContainsRune("[]|… ", r) }) {
		switch name {
		case "MODEL", "SRC":
			c = models("")
			c.candidates = append(c.candidates, candidate{embeddedName, "the embedded model"})
		case "NAME":
			switch command.Name {
			case "rm", "verify":
				c.candidates = append(c.candidates, cachedRevisions()...)
			default:
				c.candidates = append(c.candidates, cachedModels()...)
			}
		case "PATH", "FILE":
			c.paths = files
		case "FOLDER":
			c.paths = max(c.paths, folders)
		}
	}
	if command.Name == "completion" {
		for _, shell := range shells {
			c.candidates = append(c.candidates, candidate{word: shell})
		}
	}
	return c
}

// models are the names of models that begin with what is written so far: local ones in
// that folder, beside the paths that a shell completes itself, and those in the cache.
func models(current string) completion {
	return completion{candidates: append(localModels(current), cachedModels()...), paths: files}
}

// cachedModels are the names of the models in the cache all of whose files are there: of a
// repository of .gguf files each that is.
func cachedModels() (list []candidate) {
	cache, err := openCache()
	if err != nil {
		return nil
	}
	all, _ := cache.List()
	for _, m := range all {
		n := m.Name()
		if len(m.GGUF) == 0 && m.Complete() {
			list = append(list, candidate{n.String(), "in the cache"})
		}
		for _, file := range m.GGUF {
			n.File = file
			if _, err := cache.Find(n); m.Complete() || err == nil {
				list = append(list, candidate{n.String(), "in the cache, GGUF"})
			}
		}
	}
	return list
}

// cachedRevisions are the names of what is in the cache, whole or not, without files.
func cachedRevisions() (list []candidate) {
	cache, err := openCache()
	if err != nil {
		return nil
	}
	all, _ := cache.List()
	for _, m := range all {
		about := "in the cache"
		if !m.Complete() {
			about += ", not whole"
		}
		list = append(list, candidate{m.Name().String(), about})
	}
	return list
}

// mostModels bounds the entries of a folder that are looked at: a completion is waited for.
const mostModels = 1000

// localModels are the model folders and GGUF files of the folder that a path begins with.
func localModels(current string) (list []candidate) {
	folder, _ := filepath.Split(current)
	f, err := os.Open(filepath.Clean("./" + folder))
	if filepath.IsAbs(folder) {
		f, err = os.Open(folder)
	}
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, _ := f.ReadDir(mostModels)
	for _, entry := range entries {
		path := folder + entry.Name()
		switch {
		case strings.HasPrefix(entry.Name(), "."), !strings.HasPrefix(path, current):
		case strings.HasSuffix(entry.Name(), ".gguf"):
			list = append(list, candidate{path, "GGUF"})
		default:
			if info, err := os.Stat(filepath.Join(folder, entry.Name(), "config.json")); err == nil && info.Mode().IsRegular() {
				list = append(list, candidate{path, "model folder"})
			}
		}
	}
	return list
}
