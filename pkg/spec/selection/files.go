package selection

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

const (
	// claimKind is the kind of the items whose files a restore names.
	claimKind = "persistentvolumeclaims"
	// maxPaths is how many paths a restore names at most.
	maxPaths = 100
)

// parseFiles reads annotation holdfast.io/files. The claims are in order of their names. An error is an *ItemsError.
func parseFiles(text string) (items Items, err error) {
	files := map[string][]string{}
	repeated, err := json.UnmarshalStrict([]byte(text), &files)
	if err != nil {
		return Items{}, annotationError(holdfast.AnnotationFiles, fmt.Errorf(`is not {"NAMESPACE/CLAIM": ["PATH"]}: %w`, err))
	}
	if len(repeated) > 0 { // of claims with the same name the last would count alone
		return Items{}, annotationError(holdfast.AnnotationFiles, repeated[0])
	}
	count := 0
	for _, key := range slices.Sorted(maps.Keys(files)) {
		namespace, claim, _ := strings.Cut(key, "/")
		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(claim)) > 0 {
			return Items{}, annotationError(holdfast.AnnotationFiles, fmt.Errorf("%q is not NAMESPACE/CLAIM", key))
		}
		if err := CheckPaths(files[key]); err != nil {
			return Items{}, annotationError(holdfast.AnnotationFiles, fmt.Errorf("claim %s: %w", key, err))
		}
		count += len(files[key])
		items.Named, items.Files = append(items.Named, Item{Kind: claimKind, Namespace: namespace, Name: claim}), append(items.Files, files[key])
	}
	if count == 0 || count > maxPaths {
		return Items{}, annotationError(holdfast.AnnotationFiles, fmt.Errorf("names %d paths, and must name 1 to %d", count, maxPaths))
	}
	return items, nil
}

// CheckPaths checks paths of entries in one volume. Each is relative, as "etc/app.conf", without elements "." and
// "..", and none is at or below another one.
func CheckPaths(paths []string) error {
	if len(paths) == 0 {
		return errors.New("names no path")
	}
	for _, path := range paths {
		if !fs.ValidPath(path) || path == "." || strings.Contains(path, "\x00") {
			return fmt.Errorf(`%q is not the path of a file or directory, relative to the volume and without "." and ".."`, path)
		}
	}
	for i, path := range paths {
		for j, other := range paths {
			if i != j && (path == other || strings.HasPrefix(path, other+"/")) {
				return fmt.Errorf("%q is at or below %q, which is named too", path, other)
			}
		}
	}
	return nil
}
