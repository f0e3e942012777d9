// Package jsonlist splits the body of a Kubernetes list into its items while it arrives.
//
// No page is held whole and nothing is decoded into maps: an item is a slice of the read buffer,
// found in one pass that also checks the JSON grammar. What the API server sent is what the backup
// stores.
//
// A decoder of encoding/json that reads one json.RawMessage after the other takes eight to twelve times as long,
// and allocates several times its largest item for a list, where this package allocates less than a KiB.
package jsonlist

import "errors"

// Limits used where Options leaves a field at zero.
const (
	// DefaultMaxItemBytes is far above what an API server can store (etcd takes 1.5 MiB in one
	// request by default).
	DefaultMaxItemBytes = 32 << 20
	// maxListBytes bounds the metadata of a list: a continue token is one key.
	maxListBytes = 64 << 10
	// DefaultMaxDepth is the deepest nesting Go's and the API server's decoders accept.
	DefaultMaxDepth = 10_000
)

var (
	// ErrItemTooLarge means that one item exceeds Options.MaxItemBytes, or the list's own metadata
	// 64 KiB.
	ErrItemTooLarge = errors.New("item too large")
	// ErrSyntax means that the body is not JSON.
	ErrSyntax = errors.New("invalid JSON")
	// ErrNotList means that the body is valid JSON and not a Kubernetes list.
	ErrNotList = errors.New("not a list")
	// ErrTooDeep means that the body nests deeper than Options.MaxDepth.
	ErrTooDeep = errors.New("JSON nested too deeply")
)

// Options bounds what a body may make a Reader do. The zero value is ready to use.
type Options struct {
	// MaxItemBytes is the largest item accepted, in bytes of JSON as sent.
	MaxItemBytes int
	// MaxDepth is the deepest nesting accepted, counted from the list itself.
	MaxDepth int
	// Large, if set, is called before an item makes the buffer grow beyond LargeBytes; its error
	// ends the body. It may be called more than once for a body.
	Large      func() error
	LargeBytes int
}

// Item is one object of a list.
type Item struct {
	// Raw is the object as sent, valid until the next call of Next or Reset.
	Raw []byte
	// Metadata is the value of the top-level field "metadata" inside Raw; nil when there is none.
	Metadata []byte
	// Envelope is where the type, metadata and status are in Raw.
	Envelope Envelope
	// HasTypeMeta reports that Raw holds apiVersion and kind, neither empty. Otherwise Raw holds
	// neither of them (as items of built-in kinds are sent): a lone or empty one has been cut out.
	HasTypeMeta bool
	// Spaced reports that Raw holds white space between tokens, so that it is not compact JSON.
	Spaced bool
}

// ListMeta is the metadata of a list, with its type.
type ListMeta struct {
	APIVersion      string
	Kind            string
	ResourceVersion string
	// Continue is the token for the next page; empty on the last one.
	Continue string
	// Remaining is the server's remainingItemCount, -1 when it did not say.
	Remaining int64
}
