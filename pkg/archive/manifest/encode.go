package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// Entry is what an item of the manifest is made from.
type Entry struct {
	Group, Version, Kind, Resource string
	Meta                           *objmeta.Meta
	References                     []Reference
	Actions                        []string
	Cut                            string
	Live, Extra, Preferred         bool
	Path                           string
	Size                           int64
	SHA256                         [sha256.Size]byte
	// ContentHash as ContentHasher makes it; empty where there is none.
	ContentHash []byte
}

// AppendEntry appends e as the JSON of an Item without braces, offset and length, which are not
// known while a part is written. This is the only way into a manifest, and it hides the annotation
// values that must not be published.
func AppendEntry(dst []byte, e *Entry) []byte {
	m := e.Meta
	dst = appendField(dst, `"apiGroup":`, e.Group)
	dst = appendField(dst, `"apiVersion":`, e.Version)
	dst = appendField(dst, `"kind":`, e.Kind)
	dst = appendField(dst, `"resource":`, e.Resource)
	dst = appendField(dst, `"namespace":`, m.Namespace)
	dst = appendField(dst, `"name":`, m.Name)
	dst = appendField(dst, `"uid":`, m.UID)
	dst = appendField(dst, `"resourceVersion":`, m.ResourceVersion)
	dst = appendLabels(dst, m.Labels)
	dst = appendAnnotations(dst, m.Annotations, isSecret(e.Group, e.Resource, e.Kind))
	dst = appendOwners(dst, m.Owners)
	dst = appendReferences(dst, e.References)
	dst = appendActions(dst, e.Actions)
	dst = appendField(dst, `"cut":`, e.Cut)
	if e.Live {
		dst = append(dst, `"live":true,`...)
	}
	if e.Extra {
		dst = append(dst, `"extra":true,`...)
	}
	dst = strconv.AppendBool(append(dst, `"preferred":`...), e.Preferred)
	dst = rawjson.AppendQuoted(append(dst, `,"path":`...), e.Path)
	dst = strconv.AppendInt(append(dst, `,"size":`...), e.Size, 10)
	dst = append(dst, `,"sha256":"`...)
	dst = append(hex.AppendEncode(dst, e.SHA256[:]), '"')
	if len(e.ContentHash) > 0 {
		dst = append(dst, `,"contentHash":"`...)
		dst = append(hex.AppendEncode(dst, e.ContentHash), '"')
	}
	return dst
}

// appendItem completes what AppendEntry began.
func appendItem(dst, entry []byte, offset, length int64) []byte {
	dst = append(append(dst, '{'), entry...)
	dst = strconv.AppendInt(append(dst, `,"offset":`...), offset, 10)
	dst = strconv.AppendInt(append(dst, `,"length":`...), length, 10)
	return append(dst, '}')
}

func appendField(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return append(rawjson.AppendQuoted(append(dst, name...), value), ',')
}

func appendPair(dst []byte, p objmeta.Pair) []byte {
	dst = append(rawjson.AppendQuoted(dst, p.Key), ':')
	return append(rawjson.AppendQuoted(dst, p.Value), ',')
}

// closeWith replaces the comma behind the last member.
func closeWith(dst []byte, bracket string) []byte { return append(dst[:len(dst)-1], bracket...) }

func appendLabels(dst []byte, labels objmeta.Pairs) []byte {
	if len(labels) == 0 {
		return dst
	}
	dst = append(dst, `"labels":{`...)
	for _, p := range labels {
		dst = appendPair(dst, p)
	}
	return closeWith(dst, "},")
}

func appendAnnotations(dst []byte, annotations objmeta.Pairs, secret bool) []byte {
	hidden := 0
	begun := false
	for _, p := range annotations {
		if hidesValue(p, secret) {
			hidden++
			continue
		}
		if !begun {
			dst, begun = append(dst, `"annotations":{`...), true
		}
		dst = appendPair(dst, p)
	}
	if begun {
		dst = closeWith(dst, "},")
	}
	if hidden == 0 {
		return dst
	}
	dst = append(dst, `"hiddenAnnotations":{`...)
	for _, p := range annotations {
		if hidesValue(p, secret) {
			dst = appendHidden(dst, p)
		}
	}
	return closeWith(dst, "},")
}

func appendHidden(dst []byte, p objmeta.Pair) []byte {
	dst = append(rawjson.AppendQuoted(dst, p.Key), `:{"length":`...)
	dst = strconv.AppendInt(dst, int64(len(p.Value)), 10)
	dst = append(dst, `,"sha256":"`...)
	n := len(dst)
	sum := sha256.Sum256(append(dst, p.Value...)[n:]) // hashed as bytes without another copy on the heap
	dst = hex.AppendEncode(dst, sum[:])
	return append(dst, `"},`...)
}

func appendOwners(dst []byte, owners []objmeta.Owner) []byte {
	if len(owners) == 0 {
		return dst
	}
	dst = append(dst, `"owners":[`...)
	for i := range owners {
		o := &owners[i]
		dst = rawjson.AppendQuoted(append(dst, `{"apiVersion":`...), o.APIVersion)
		dst = rawjson.AppendQuoted(append(dst, `,"kind":`...), o.Kind)
		dst = rawjson.AppendQuoted(append(dst, `,"name":`...), o.Name)
		dst = rawjson.AppendQuoted(append(dst, `,"uid":`...), o.UID)
		if o.Controller {
			dst = append(dst, `,"controller":true`...)
		}
		if o.BlockOwnerDeletion {
			dst = append(dst, `,"blockOwnerDeletion":true`...)
		}
		dst = append(dst, `},`...)
	}
	return closeWith(dst, "],")
}

func appendReferences(dst []byte, references []Reference) []byte {
	if len(references) == 0 {
		return dst
	}
	dst = append(dst, `"references":[`...)
	for i := range references {
		r := &references[i]
		dst = append(dst, '{')
		dst = appendField(dst, `"group":`, r.Group)
		dst = append(rawjson.AppendQuoted(append(dst, `"kind":`...), r.Kind), ',')
		dst = appendField(dst, `"namespace":`, r.Namespace)
		dst = rawjson.AppendQuoted(append(dst, `"name":`...), r.Name)
		dst = rawjson.AppendQuoted(append(dst, `,"relation":`...), r.Relation)
		dst = append(dst, `},`...)
	}
	return closeWith(dst, "],")
}

func appendActions(dst []byte, actions []string) []byte {
	if len(actions) == 0 {
		return dst
	}
	dst = append(dst, `"actions":[`...)
	for _, a := range actions {
		dst = append(rawjson.AppendQuoted(dst, a), ',')
	}
	return closeWith(dst, "],")
}
