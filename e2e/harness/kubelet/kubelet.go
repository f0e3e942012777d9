// Package kubelet is as much of a node as running commands in containers takes: a Node, Pods on it
// with the status Running, and a server on loopback to which the API server proxies what is to be
// run, and requests for logs.
package kubelet

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// Node is a node of a cluster. Safe for concurrent use.
type Node struct {
	name   string
	client kubernetes.Interface
	server *httptest.Server

	logFile atomic.Pointer[func(namespace, pod string) string]
}

// Start registers a node under a name, which runs commands with handler. The caller calls Close.
func Start(ctx context.Context, config *rest.Config, name string, handler *kubetest.ExecHandler) (*Node, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect the node: %w", err)
	}
	n := &Node{name: name, client: client}
	n.server = httptest.NewTLSServer(n.serveRequest(handler))
	if err := n.registerNode(ctx); err != nil {
		n.Close()
		return nil, fmt.Errorf("register the node: %w", err)
	}
	return n, nil
}

// Name is the name of the node.
func (n *Node) Name() string { return n.name }

// Close stops the server. The Node stays.
func (n *Node) Close() { n.server.Close() }

func (n *Node) registerNode(ctx context.Context) error {
	host, text, err := net.SplitHostPort(n.server.Listener.Addr().String())
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return err
	}
	node, err := n.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.name, Labels: map[string]string{corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.ResourceVersion = "" // the node controller writes it too
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	_, err = n.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// Run creates a Pod on the node and sets its status to Running.
func (n *Node) Run(ctx context.Context, pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = n.name
	made, err := n.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a pod on the node: %w", err)
	}
	return n.Ready(ctx, made)
}

// Adopt takes a Pod that may have no node yet, and sets its status so that the containers with
// these names run, ready or not; no names are all containers.
func (n *Node) Adopt(ctx context.Context, namespace, name string, ready bool, containers ...string) error {
	pod, err := n.Bind(ctx, namespace, name)
	if err != nil {
		return err
	}
	return n.reportPod(ctx, pod, ready, containers)
}

// Bind gives a Pod that has no node this one, as a scheduler does, and returns it.
func (n *Node) Bind(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pods := n.client.CoreV1().Pods(namespace)
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err == nil && pod.Spec.NodeName == "" {
		err = pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: n.name}}, metav1.CreateOptions{})
		if err == nil {
			pod, err = pods.Get(ctx, name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("take a pod: %w", err)
	}
	return pod, nil
}

// Initialise sets the status of a Pod so that an init container runs, and no other container yet.
func (n *Node) Initialise(ctx context.Context, pod *corev1.Pod, container string) error {
	pod = pod.DeepCopy()
	pod.ResourceVersion = "" // controllers write it too
	started := metav1.Now()
	pod.Status.Phase, pod.Status.StartTime = corev1.PodPending, &started
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: container, Image: "none", ImageID: "none", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
	}}
	if _, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say that a pod initialises: %w", err)
	}
	return nil
}

// Ready sets the status of a Pod so that its containers run and are ready.
func (n *Node) Ready(ctx context.Context, pod *corev1.Pod) error {
	return n.reportPod(ctx, pod, true, nil)
}

func (n *Node) reportPod(ctx context.Context, pod *corev1.Pod, ready bool, containers []string) error {
	pod = pod.DeepCopy()
	pod.ResourceVersion = "" // controllers write it too
	started := metav1.Now()
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &started
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: started}}
	if !ready || len(containers) > 0 {
		pod.Status.Conditions = nil
	}
	report := func(c *corev1.Container) corev1.ContainerStatus {
		status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "none",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
		if len(containers) == 0 || slices.Contains(containers, c.Name) {
			status.Ready, status.Started = ready, new(true)
			status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
		}
		return status
	}
	pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = nil, nil
	for i := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, report(&pod.Spec.Containers[i]))
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, report(c)) // a sidecar
		}
	}
	if _, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say that a pod runs: %w", err)
	}
	return nil
}
