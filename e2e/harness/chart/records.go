package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Records names the environment variable with the directory into which each site writes what its
// services were allowed, as a file of its own. It must exist; without the variable nothing is written.
const Records = "RIGHTS_DIR"

// recordRequests writes a file of requests, named after the package and the test.
func recordRequests(test string, allowed map[Request]bool) (err error) {
	dir := os.Getenv(Records)
	if dir == "" {
		return nil
	}
	suite, err := os.Getwd()
	if err != nil {
		return err
	}
	text, err := json.Marshal(slices.Collect(maps.Keys(allowed)))
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, filepath.Base(suite)+"-"+strings.ReplaceAll(test, "/", "_")+"-*.json")
	if err != nil {
		return fmt.Errorf("record what was allowed: %w", err)
	}
	if _, err = file.Write(text); err != nil {
		_ = file.Close()
		return fmt.Errorf("record what was allowed: %w", err)
	}
	return file.Close()
}

// Recorded returns what is recorded in a directory: the requests, and how many files there are.
func Recorded(dir string) (all []Request, files int, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, 0, err
		}
		var some []Request
		if err := json.Unmarshal(text, &some); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, some...)
	}
	return all, len(names), nil
}
