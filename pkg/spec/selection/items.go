package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// Items are the objects of a backup that a restore names, and what comes along with them. The zero value is
// that of a restore that names none: it takes all that its filters select.
type Items struct {
	Named []Item
	// Dependencies are what an object refers to, Children what it owns, in any number of steps.
	Dependencies, Children bool
	// Files, if set, are what is restored instead of the objects: of each of Named, a claim, the paths in its volume.
	Files [][]string
}

// Item names an object of a backup.
type Item struct {
	// Kind is a kind, plural, singular or short name, alone or with its group: "deploy", "widgets.example.com".
	Kind string
	// Namespace is empty for a cluster-scoped object.
	Namespace, Name string
}

// The words of annotation holdfast.io/items-with.
const (
	WithDependencies = "dependencies"
	WithChildren     = "children"
)

// maxItem is longer than any kind, group, namespace and name together.
const (
	maxItem      = 1024
	maxNameShown = 64
)

// String returns KIND/NAMESPACE/NAME, or KIND/NAME.
func (i Item) String() string {
	if i.Namespace == "" {
		return i.Kind + "/" + i.Name
	}
	return i.Kind + "/" + i.Namespace + "/" + i.Name
}

// ParseItem reads KIND/NAMESPACE/NAME, or KIND/NAME.
func ParseItem(text string) (Item, error) {
	parts := strings.Split(text, "/")
	if len(text) > maxItem {
		return Item{}, fmt.Errorf("%q… is longer than the name of any object", text[:maxNameShown])
	}
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return Item{}, fmt.Errorf("%q is neither KIND/NAMESPACE/NAME nor, of a cluster-scoped object, KIND/NAME", text)
	}
	item := Item{Kind: parts[0], Name: parts[len(parts)-1]}
	if len(parts) == 3 {
		item.Namespace = parts[1]
	}
	return item, nil
}

// ParseItems reads the annotations of a Restore. An error is an *ItemsError.
func ParseItems(annotations map[string]string) (items Items, err error) {
	named, set := annotations[holdfast.AnnotationItems]
	with, along := annotations[holdfast.AnnotationItemsWith]
	if text, of := annotations[holdfast.AnnotationFiles]; of {
		if set || along {
			return Items{}, annotationError(holdfast.AnnotationFiles, errors.New("cannot be set together with "+holdfast.AnnotationItems))
		}
		return parseFiles(text)
	}
	if !set {
		if along {
			return Items{}, annotationError(holdfast.AnnotationItemsWith, errors.New("annotation "+holdfast.AnnotationItems+" names no items"))
		}
		return Items{}, nil
	}
	for text := range strings.SplitSeq(named, ",") {
		item, err := ParseItem(strings.TrimSpace(text))
		if err != nil {
			return Items{}, annotationError(holdfast.AnnotationItems, err)
		}
		items.Named = append(items.Named, item)
	}
	for word := range strings.SplitSeq(with, ",") {
		switch word = strings.TrimSpace(word); {
		case word == WithDependencies:
			items.Dependencies = true
		case word == WithChildren:
			items.Children = true
		case along:
			return Items{}, annotationError(holdfast.AnnotationItemsWith, fmt.Errorf("%q is neither %s nor %s", word, WithDependencies, WithChildren))
		}
	}
	return items, nil
}

// ItemsError is an annotation that names no items, or not as it should.
type ItemsError struct {
	// Field is the annotation, as a path below the Restore.
	Field string
	Err   error
}

// Error implements error.
func (e *ItemsError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *ItemsError) Unwrap() error { return e.Err }

func annotationError(annotation string, err error) error {
	return &ItemsError{Field: "metadata.annotations[" + annotation + "]", Err: err}
}

// Bounds returns the namespaces, by their names in the backup, that the items and nothing else live in, sorted.
// They are not known where other objects come along.
func (i *Items) Bounds() (namespaces []string, known bool) {
	if len(i.Named) == 0 || i.Dependencies || i.Children {
		return nil, false
	}
	namespaces = []string{}
	for _, item := range i.Named {
		if kind, _, _ := strings.Cut(strings.ToLower(item.Kind), "."); item.Namespace == "" && slices.Contains([]string{"namespaces", "namespace", "ns"}, kind) {
			item.Namespace = item.Name
		}
		if item.Namespace != "" {
			namespaces = append(namespaces, item.Namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces), true
}
