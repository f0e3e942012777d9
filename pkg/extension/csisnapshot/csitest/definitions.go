package csitest

import (
	"bytes"
	"context"
	_ "embed" // the definitions
	"errors"
	"fmt"
	"io"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed definitions.yaml
var definitions []byte

// Define makes a cluster serve the snapshot API, and returns once it does.
func Define(ctx context.Context, c client.Client) error {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(definitions), len(definitions))
	for {
		d := &apiextensionsv1.CustomResourceDefinition{}
		err := documents.Decode(d)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = c.Create(ctx, d)
		}
		if err == nil {
			err = established(ctx, c, d)
		}
		if err != nil {
			return fmt.Errorf("define %s: %w", d.Name, err)
		}
	}
}

func established(ctx context.Context, c client.Client, d *apiextensionsv1.CustomResourceDefinition) error {
	ticker := clock.RealClock{}.NewTicker(50 * time.Millisecond) //nolint:mnd // soon
	defer ticker.Stop()
	for {
		if err := c.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		for _, condition := range d.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
