package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/e2e/harness/seed"
)

// sharedNamespace is the namespace of the demo's server in a cluster that is not its own.
const sharedNamespace = "holdfast-demo"

// checkShared refuses a cluster in which the demo could touch something that it did not make.
func (d *demo) checkShared(ctx context.Context) error {
	if found, err := seed.Present(ctx, d.config); err != nil {
		return err
	} else if found {
		return fmt.Errorf("the cluster has objects labelled %s: left by an earlier run? Remove them first", seed.Selector())
	}
	client, err := kubernetes.NewForConfig(d.config)
	if err != nil {
		return err
	}
	for _, name := range append(d.estateNamespaces(), sharedNamespace) {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("namespace %s exists already; the demo wants one of its own", name)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	definitions, err := d.veleroDefinitions(ctx)
	if err != nil {
		return err
	}
	if !d.share {
		if err := refuseVelero(ctx, client, definitions); err != nil {
			return err
		}
	}
	d.Say("the server's namespace will be %s, the estate's %v", sharedNamespace, d.estateNamespaces())
	d.undo = append(d.undo, func(ctx context.Context) error { return d.leaveCluster(ctx, client, definitions) })
	return nil
}

func refuseVelero(ctx context.Context, client kubernetes.Interface, definitions []string) error {
	if len(definitions) > 0 {
		return fmt.Errorf("the cluster has %d velero.io definitions (%s); --share (make demo SHARE=1) goes on nevertheless", len(definitions), definitions[0])
	}
	servers, err := client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, deployment := range servers.Items {
		for _, container := range deployment.Spec.Template.Spec.Containers {
			if deployment.Name == "velero" || strings.Contains(container.Image, "velero/velero:") {
				return fmt.Errorf("the cluster has a Velero server (%s/%s); --share (make demo SHARE=1) goes on nevertheless",
					deployment.Namespace, deployment.Name)
			}
		}
	}
	return nil
}

func (d *demo) veleroDefinitions(ctx context.Context) ([]string, error) {
	client, err := clientset.NewForConfig(d.config)
	if err != nil {
		return nil, err
	}
	list, err := client.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, definition := range list.Items {
		if definition.Spec.Group == "velero.io" {
			names = append(names, definition.Name)
		}
	}
	return names, nil
}

// leaveCluster removes the server's namespace and, if there were none before, the definitions that
// the server installed.
func (d *demo) leaveCluster(ctx context.Context, client kubernetes.Interface, before []string) error {
	if err := d.dropFinalizers(ctx); err != nil {
		return err
	}
	if err := removeNamespace(ctx, client); err != nil {
		return err
	}
	if len(before) > 0 {
		return nil
	}
	names, err := d.veleroDefinitions(ctx)
	if err != nil {
		return err
	}
	extensions, err := clientset.NewForConfig(d.config)
	if err != nil {
		return err
	}
	for _, name := range names {
		err := extensions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

// dropFinalizers frees the Restores of an interrupted demo: the server that would have cleaned up
// after them is stopped, and its data is gone.
func (d *demo) dropFinalizers(ctx context.Context) error {
	client, err := dynamic.NewForConfig(d.config)
	if err != nil {
		return err
	}
	restores := client.Resource(schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "restores"}).Namespace(sharedNamespace)
	list, err := restores.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the server never got so far as to install the definition
	}
	if err != nil {
		return fmt.Errorf("list the demo's restores: %w", err)
	}
	for _, restore := range list.Items {
		_, err := restores.Patch(ctx, restore.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("free restore %s: %w", restore.GetName(), err)
		}
	}
	return nil
}

// removeNamespace deletes the server's namespace and returns once it is gone.
func removeNamespace(ctx context.Context, client kubernetes.Interface) error {
	err := client.CoreV1().Namespaces().Delete(ctx, sharedNamespace, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove namespace %s: %w", sharedNamespace, err)
	}
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, sharedNamespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s does not go away: %w", sharedNamespace, err)
	}
	return nil
}
