package itemset

import "github.com/holdfast-io/holdfast/pkg/json/rawjson"

// AppendTyped appends the object of it, whose Raw lacks them, with apiVersion and kind.
func AppendTyped(dst []byte, it *SpooledItem) []byte {
	version := it.Version
	if it.Group != "" {
		version = it.Group + "/" + it.Version
	}
	dst = append(dst, `{"apiVersion":`...)
	dst = rawjson.AppendQuoted(dst, version)
	dst = append(dst, `,"kind":`...)
	dst = rawjson.AppendQuoted(dst, it.Kind)
	if len(it.Raw) > len(`{}`) {
		dst = append(dst, ',')
	}
	return append(dst, it.Raw[1:]...)
}
