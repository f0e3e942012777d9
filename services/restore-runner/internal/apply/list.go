package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

const (
	// pageLimit bounds the objects of a page, and so the memory that a page takes.
	pageLimit = 100
	// maxRelists is how often a list is begun anew whose revision was compacted meanwhile.
	maxRelists = 3
	// metadataList is the Accept header for a list of metadata.
	metadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// listPage is a page of a list.
type listPage[T any] struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

// EachName calls do for the name of each object of the collection of t, without its Name.
func (c *Client) EachName(ctx context.Context, t Target, do func(name string)) error {
	type named struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	return eachItem(ctx, c, t, metadataList, func(o *named) { do(o.Metadata.Name) })
}

// EachObject decodes each object of the collection of t, without its Name, and calls do for it.
func EachObject[T any](ctx context.Context, c *Client, t Target, do func(*T)) error {
	return eachItem(ctx, c, t, wholeObject, do)
}

// eachItem reads a list page by page. do is called again for what it had when the list has to be begun
// anew.
func eachItem[T any](ctx context.Context, c *Client, t Target, accept string, do func(*T)) error {
	next, begun := "", 0
	for {
		raw, _, err := c.sendWithRetry(ctx, confirmFree, func() *rest.Request {
			r := c.rest.Get().AbsPath(t.resourcePath("")...).SetHeader("Accept", accept).Param("limit", strconv.Itoa(pageLimit))
			if next != "" {
				r.Param("continue", next)
			}
			return r
		})
		if apierrors.IsResourceExpired(err) && begun < maxRelists {
			next, begun = "", begun+1
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", t.GVR.GroupResource(), err)
		}
		var page listPage[T]
		if err := json.Unmarshal(raw, &page); err != nil {
			return fmt.Errorf("decode the list of %s: %w", t.GVR.GroupResource(), err)
		}
		for i := range page.Items {
			do(&page.Items[i])
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}
