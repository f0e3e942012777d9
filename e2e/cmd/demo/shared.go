package main

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/e2e/seed"
)

// sharedNamespace is where the demo's server lives in a cluster that is not its own.
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
	for _, name := range append(d.namespaces(), sharedNamespace) {
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
	d.Say("the server's namespace will be %s, the estate's %v", sharedNamespace, d.namespaces())
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

// leaveCluster removes the server's namespace and, if there were none before, the definitions that the server installed.
func (d *demo) leaveCluster(ctx context.Context, client kubernetes.Interface, before []string) error {
	err := client.CoreV1().Namespaces().Delete(ctx, sharedNamespace, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove namespace %s: %w", sharedNamespace, err)
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
