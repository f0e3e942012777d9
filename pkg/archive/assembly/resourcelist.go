package assembly

import (
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// resourceList writes {"v1/Pod":["ns/name",...]} (Velero 1.18 layout) from keys in order.
type resourceList struct {
	out  *outputFile
	kind string
	any  bool
	text []byte
}

func newResourceList(dir string) (*resourceList, error) {
	out, err := newOutput(dir, "resources-*", true)
	if err != nil {
		return nil, err
	}
	return &resourceList{out: out}, nil
}

func (r *resourceList) addKey(key []byte) error {
	k, ok := manifest.ParseKey(key)
	if !ok {
		return fmt.Errorf("resource list: %w: key %q", part.ErrCorrupt, key)
	}
	switch {
	case !r.any:
		r.text = append(rawjson.AppendQuoted(append(r.text[:0], '{'), k.Kind), ":["...)
	case k.Kind != r.kind:
		r.text = append(rawjson.AppendQuoted(append(r.text[:0], "],"...), k.Kind), ":["...)
	default:
		r.text = append(r.text[:0], ',')
	}
	r.any, r.kind = true, k.Kind
	name := k.Name
	if k.Namespace != "" {
		name = k.Namespace + "/" + k.Name
	}
	r.text = rawjson.AppendQuoted(r.text, name)
	_, err := r.out.Write(r.text)
	return err
}

func (r *resourceList) finishList() (part.File, error) {
	end := "]}\n"
	if !r.any {
		end = "{}\n"
	}
	if _, err := r.out.Write([]byte(end)); err != nil {
		return part.File{}, errors.Join(err, r.out.discardOutput())
	}
	return r.out.finishOutput()
}
