// Package crds holds the custom resource definitions of velero.io and installs them. The YAML files
// are generated from pkg/apis/velero by controller-gen.
package crds

//go:generate sh -c "cd ../.. && ../.tools/bin/controller-gen object crd paths=./apis/velero/... output:crd:artifacts:config=apis/crds"

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// pollEvery is how often the server is asked whether definitions are served.
const pollEvery = 50 * time.Millisecond

// All returns the definitions, sorted by name. The caller owns them.
func All() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list embedded definitions: %w", err)
	}
	all := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(names))
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read embedded definition: %w", err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return nil, fmt.Errorf("decode embedded definition %s: %w", name, err)
		}
		all = append(all, crd)
	}
	return all, nil
}

// Install makes the cluster serve every kind of velero.io: it creates missing definitions and adds
// missing versions, fields and enum values to present ones. It never removes or narrows anything,
// so definitions installed by Velero, of any version, keep working for Velero. It returns once
// discovery shows every kind; an error names the definition.
func Install(ctx context.Context, cfg *rest.Config) error {
	client, err := clientset.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("connect to the definitions' API: %w", err)
	}
	return installDefinitions(ctx, client)
}

// Missing returns what Install would have to add before every kind is served, as
// "<plural>.velero.io/<version>", sorted by name. Fields are not compared.
func Missing(_ context.Context, cfg *rest.Config) ([]string, error) {
	client, err := clientset.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the definitions' API: %w", err)
	}
	return missingDefinitions(client)
}

func installDefinitions(ctx context.Context, client clientset.Interface) error {
	all, err := All()
	if err != nil {
		return err
	}
	for _, crd := range all {
		if err := ensureDefinition(ctx, client, crd); err != nil {
			return err
		}
	}
	for _, crd := range all {
		if err := waitEstablished(ctx, client, crd.Name); err != nil {
			return err
		}
	}
	return waitServed(ctx, client, all)
}

// ensureDefinition creates one definition or completes the present one. A definition that another installer
// creates at the same moment is completed like any other.
func ensureDefinition(ctx context.Context, client clientset.Interface, want *apiextensionsv1.CustomResourceDefinition) error {
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		have, err := crds.Get(ctx, want.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			if _, err = crds.Create(ctx, want, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				return err
			}
			have, err = crds.Get(ctx, want.Name, metav1.GetOptions{})
		}
		if err != nil {
			return err
		}
		if !Complete(have, want) {
			return nil
		}
		_, err = crds.Update(ctx, have, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("install definition %s: %w", want.Name, err)
	}
	return nil
}

// waitEstablished waits until the server accepted a definition. Names taken by another definition
// are an error at once: waiting would not help.
func waitEstablished(ctx context.Context, client clientset.Interface, name string) error {
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		crd, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		established := false
		for _, c := range crd.Status.Conditions {
			switch {
			case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
				return false, fmt.Errorf("names not accepted: %s", c.Message)
			case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
				established = true
			}
		}
		return established, nil
	})
	if err != nil {
		return fmt.Errorf("wait for definition %s: %w", name, err)
	}
	return nil
}

// waitServed waits until discovery shows every kind: an established definition is served a moment
// later, and clients that ask before that get 404.
func waitServed(ctx context.Context, client clientset.Interface, all []*apiextensionsv1.CustomResourceDefinition) error {
	var absent []string
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(context.Context) (bool, error) {
		var err error
		absent, err = unservedVersions(client, all)
		return err == nil && len(absent) == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for discovery of %v: %w", absent, err)
	}
	return nil
}

func missingDefinitions(client clientset.Interface) ([]string, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	return unservedVersions(client, all)
}

// unservedVersions compares the definitions with discovery.
func unservedVersions(client clientset.Interface, all []*apiextensionsv1.CustomResourceDefinition) ([]string, error) {
	served := map[schema.GroupVersionResource]bool{}
	asked := map[schema.GroupVersion]bool{}
	var absent []string
	for _, crd := range all {
		for _, v := range crd.Spec.Versions {
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
			if !asked[gv] {
				asked[gv] = true
				list, err := client.Discovery().ServerResourcesForGroupVersion(gv.String())
				if err != nil && !apierrors.IsNotFound(err) {
					return nil, fmt.Errorf("discover %s: %w", gv, err)
				}
				for i := 0; list != nil && i < len(list.APIResources); i++ {
					served[gv.WithResource(list.APIResources[i].Name)] = true
				}
			}
			if !served[gv.WithResource(crd.Spec.Names.Plural)] {
				absent = append(absent, crd.Name+"/"+v.Name)
			}
		}
	}
	return absent, nil
}
