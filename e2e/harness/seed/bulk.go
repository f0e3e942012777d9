package seed

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BulkOptions is which plain objects Bulk makes.
type BulkOptions struct {
	Namespace string // must exist
	Name      string // prefix of the names; "bulk" when empty
	Count     int    // how many
	Size      int    // bytes of data in each, incompressible
	Secrets   bool   // Secrets instead of ConfigMaps
	Writers   int    // parallel creates; 32 when 0
}

// Bulk creates plain objects in parallel, as fast as the API server takes them.
func Bulk(ctx context.Context, config *rest.Config, options BulkOptions) error {
	if options.Writers <= 0 {
		options.Writers = 32
	}
	if options.Name == "" {
		options.Name = "bulk"
	}
	c, err := newClient(config)
	if err != nil {
		return err
	}
	return runParallel(ctx, options.Count, options.Writers, func(i int) error {
		object := options.bulkObject(i)
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("create %s/%s: %w", object.GetNamespace(), object.GetName(), err)
		}
		return nil
	})
}

func (o BulkOptions) bulkObject(i int) client.Object {
	name := o.Name + "-" + strconv.Itoa(i)
	if o.Secrets {
		return &corev1.Secret{ObjectMeta: objectMeta(o.Namespace, name), Data: map[string][]byte{"data": bytesFor(name, o.Size)}}
	}
	return &corev1.ConfigMap{ObjectMeta: objectMeta(o.Namespace, name), Data: map[string]string{"data": textFor(name, o.Size)}}
}
