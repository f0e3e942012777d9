package manifest

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// ContentHashBytes is the length of a content hash: the first half of a SHA-256.
const ContentHashBytes = 16

// omission names fields of an object that say nothing about what a restore brings back. The value
// of a name is what is left out inside that field, nil for the whole field.
type omission map[string]omission

// kindOf is a kind without its version.
type kindOf struct{ group, kind string }

// everyKind is left out of objects of every kind: the type, since the key of an object has it
// without version, the status, and the metadata that an API server or a restore writes.
var everyKind = omission{
	"apiVersion": nil, "kind": nil, "status": nil,
	"metadata": {
		"generateName": nil, "selfLink": nil, "uid": nil, "resourceVersion": nil, "generation": nil, "creationTimestamp": nil,
		"deletionTimestamp": nil, "deletionGracePeriodSeconds": nil, "managedFields": nil, "ownerReferences": nil,
		"labels":      {"velero.io/backup-name": nil, "velero.io/restore-name": nil},
		"annotations": {},
	},
}

// leader is the annotation in which client-go's locks have their holder.
var leader = omission{"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": nil}}}

// binding are the annotations by which the volume controller keeps account.
var binding = omission{"pv.kubernetes.io/bind-completed": nil, "pv.kubernetes.io/bound-by-controller": nil}

// generated are the labels by which a Job finds its Pods.
var generated = omission{"controller-uid": nil, "batch.kubernetes.io/controller-uid": nil}

// byKind is left out of objects of one kind, besides: what a restore resets in them.
var byKind = mergeEvery(map[kindOf]omission{
	{"coordination.k8s.io", "Lease"}: {"spec": {"holderIdentity": nil, "acquireTime": nil, "renewTime": nil}, "metadata": leader["metadata"]},
	{"", "ConfigMap"}:                leader,
	{"", "Endpoints"}:                leader,
	{"", "PersistentVolume"}:         {"metadata": {"annotations": binding}, "spec": {"claimRef": {"uid": nil, "resourceVersion": nil}}},
	{"", "PersistentVolumeClaim"}: {"metadata": {"annotations": mergeOmissions(binding, omission{
		"volume.beta.kubernetes.io/storage-provisioner": nil, "volume.kubernetes.io/storage-provisioner": nil, "volume.kubernetes.io/selected-node": nil,
	})}},
	{"batch", "Job"}: {
		"metadata": {"labels": generated},
		"spec":     {"selector": {"matchLabels": generated}, "template": {"metadata": {"labels": generated}}},
	},
})

func mergeEvery(kinds map[kindOf]omission) map[kindOf]omission {
	for k, o := range kinds {
		kinds[k] = mergeOmissions(everyKind, o)
	}
	return kinds
}

func mergeOmissions(a, b omission) omission {
	out := maps.Clone(a)
	for key, inner := range b {
		if both := out[key]; both != nil && inner != nil {
			inner = mergeOmissions(both, inner)
		}
		out[key] = inner
	}
	return out
}

// omissionOf returns what is left out of objects of a kind.
func omissionOf(group, kind string) omission {
	if o, ok := byKind[kindOf{group, kind}]; ok {
		return o
	}
	return everyKind
}

// Ignored returns the paths of the fields that a content hash of that kind leaves out.
func Ignored(group, kind string) [][]string { return omissionOf(group, kind).appendPaths(nil, nil) }

func (o omission) appendPaths(dst [][]string, at []string) [][]string {
	for key, inner := range o {
		path := slices.Concat(at, []string{key})
		if inner == nil {
			dst = append(dst, path)
		}
		dst = inner.appendPaths(dst, path)
	}
	return dst
}

// DropIgnored removes from a decoded object what a content hash leaves out.
func DropIgnored(obj map[string]any, group, kind string) { omissionOf(group, kind).dropFrom(obj) }

func (o omission) dropFrom(obj map[string]any) {
	for key, inner := range o {
		value, ok := obj[key]
		child, isObject := value.(map[string]any)
		if isObject && inner != nil {
			inner.dropFrom(child)
		}
		if ok && (inner == nil || value == nil || isObject && len(child) == 0) {
			delete(obj, key)
		}
	}
}

// ContentHasher hashes what a restore would compare of objects: two bodies of one object have the
// same content hash if they differ in ignored fields only. The order of fields counts: an API
// server of one version writes it always the same way. A ContentHasher is not safe for concurrent
// use.
type ContentHasher struct {
	sum  hash.Hash
	text []byte   // scratch: of the metadata
	rest [][]byte // scratch
	open []byte   // brackets of objects of which nothing is hashed yet
	out  [sha256.Size]byte
}

// NewContentHasher returns a ContentHasher.
func NewContentHasher() *ContentHasher { return &ContentHasher{sum: sha256.New()} }

// Content is an object to hash.
type Content struct {
	Group, Kind string
	// Body is compact JSON.
	Body []byte
	// Meta is the metadata in Body.
	Meta *objmeta.Meta
	// Envelope of Body. Without it Body is walked.
	Envelope jsonlist.Envelope
}

// HashContent returns the hash of an object. The result is valid until the next call, and nil if
// the body is no object.
func (h *ContentHasher) HashContent(c *Content) []byte {
	h.sum.Reset()
	o := omissionOf(c.Group, c.Kind)
	h.hashMeta(c.Meta, o["metadata"])
	var known bool
	if _, walked := o["spec"]; !walked {
		h.rest, known = c.Envelope.AppendRest(h.rest[:0], c.Body)
	}
	if !known {
		h.open = h.open[:0]
		if err := h.hashFields(c.Body, o, true); err != nil {
			return nil
		}
	}
	for _, run := range h.rest {
		h.hashSpan(run)
	}
	h.rest = h.rest[:0]
	return h.sum.Sum(h.out[:0])[:ContentHashBytes]
}

// hashMeta hashes what is decoded of the metadata, which is all that a restore compares of it. The
// name and namespace are in the key.
func (h *ContentHasher) hashMeta(m *objmeta.Meta, o omission) {
	h.text = appendPairs(append(h.text[:0], 'l'), m.Labels, o["labels"])
	h.text = appendPairs(append(h.text, 'a'), m.Annotations, o["annotations"])
	h.text = append(h.text, 'f')
	for _, f := range m.Finalizers {
		h.text = appendCounted(h.text, f)
	}
	_, _ = h.sum.Write(append(h.text, ';')) // a hash never fails
}

func appendPairs(dst []byte, pairs objmeta.Pairs, o omission) []byte {
	for _, p := range pairs {
		if _, ignored := o[p.Key]; !ignored {
			dst = appendCounted(appendCounted(dst, p.Key), p.Value)
		}
	}
	return dst
}

func appendCounted(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(append(dst, '"'), uint64(len(s))), s...)
}

// hashFields hashes the fields of an object that are not left out, each with a comma behind it. The
// metadata at the top is hashed already.
func (h *ContentHasher) hashFields(b []byte, o omission, top bool) error {
	f := rawjson.ObjectFields(b)
	from, to := 0, 0 // neighbouring fields that are hashed at once
	for f.Next() {
		inner, partly := o[string(f.Key)]
		start, end := f.Span()
		if !partly {
			if from == to {
				from = start
			}
			to = end
			continue
		}
		h.hashSpan(b[from:to])
		from = to
		switch {
		case inner == nil || top && string(f.Key) == "metadata":
		case f.Value[0] == '{':
			if err := h.hashObject(b[start:end-len(f.Value)], f.Value, inner); err != nil {
				return err
			}
		case !rawjson.IsNull(f.Value):
			h.hashSpan(b[start:end])
		}
	}
	h.hashSpan(b[from:to])
	return f.Err()
}

// hashObject hashes a field that is left out in parts; an empty rest counts as no field.
func (h *ContentHasher) hashObject(name, value []byte, o omission) error {
	before := len(h.open)
	h.open = append(append(h.open, name...), '{')
	opened := len(h.open)
	if err := h.hashFields(value, o, false); err != nil {
		return err
	}
	if len(h.open) == opened {
		h.open = h.open[:before]
		return nil
	}
	_, _ = h.sum.Write(closing) // a hash never fails
	return nil
}

var (
	comma   = []byte{','}
	closing = []byte("},")
)

func (h *ContentHasher) hashSpan(b []byte) {
	if len(b) == 0 {
		return
	}
	if len(h.open) > 0 {
		_, _ = h.sum.Write(h.open)
		h.open = h.open[:0]
	}
	_, _ = h.sum.Write(b)
	_, _ = h.sum.Write(comma)
}
