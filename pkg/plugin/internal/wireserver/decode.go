package wireserver

import (
	"bytes"
	"encoding/json"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// decodeItem decodes an object; numbers without a fraction stay whole. field names it in errors.
func decodeItem(field string, raw []byte) (*unstructured.Unstructured, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%s: no JSON object: %v", field, err)
	}
	if content == nil {
		return nil, status.Errorf(codes.InvalidArgument, "%s: want a JSON object", field)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// encodeItem encodes what an action returned.
func encodeItem(item *unstructured.Unstructured) ([]byte, error) {
	if item == nil || item.Object == nil {
		return nil, status.Error(codes.Internal, "item: the action returned an empty object")
	}
	raw, err := json.Marshal(item.Object)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "item: what the action returned is no JSON: %v", err)
	}
	return raw, nil
}

// jobCache keeps the last Job: thousands of calls carry the same one.
type jobCache struct {
	last atomic.Pointer[plugin.Job]
}

func (c *jobCache) decodeJob(field string, raw []byte) (*plugin.Job, error) {
	if last := c.last.Load(); last != nil && bytes.Equal(last.JSON(), raw) {
		return last, nil
	}
	job, err := plugin.NewJob(raw)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%s: %v", field, err)
	}
	c.last.Store(job)
	return job, nil
}
