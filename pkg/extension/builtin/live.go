package builtin

import (
	"bytes"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
)

// Lists is a rawlist.Client.
type Lists interface {
	List(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error
}

// Live is the Lister of a cluster as it is now.
type Live struct {
	Lists   Lists
	Catalog *resource.Catalog
}

// Each implements Lister. A page is held until it is complete.
func (l Live) Each(ctx context.Context, gr schema.GroupResource, namespace, selector string, visit func(*action.Object) error) error {
	served, ok := l.Catalog.Lookup(gr)
	if !ok {
		return nil
	}
	err := l.Lists.List(ctx, rawlist.Request{Resource: served.GVR(), Namespace: namespace, Selector: selector}, &listPage{visit: visit})
	if err != nil {
		return fmt.Errorf("list %s: %w", gr, err)
	}
	return nil
}

// listPage is a rawlist.Sink that shows the objects of a page once they count.
type listPage struct {
	visit func(*action.Object) error
	items []*action.Object
}

func (p *listPage) Begin(string) error { return nil }

func (p *listPage) Item(item jsonlist.Item) error {
	p.items = append(p.items, action.FromJSON(bytes.Clone(item.Raw)))
	return nil
}

func (p *listPage) Commit(rawlist.Page) error {
	for _, o := range p.items {
		if err := p.visit(o); err != nil {
			return err
		}
	}
	return p.Rollback()
}

func (p *listPage) Rollback() error {
	p.items = nil
	return nil
}
