package podvolume

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// podFacts are what of a Pod decides on its volumes.
type podFacts struct {
	name, uid, node string
	phase           corev1.PodPhase
	leaves          bool // it is being deleted
}

// survey is what a namespace has of Pods.
type survey struct {
	pods map[string]podFacts
	// owners are the Pods with which the data of claims is taken, by claim: of several that choose
	// it the first by name that runs.
	owners map[string]string
}

// surveyNamespace returns the survey of a namespace, which is made once.
func (b *Backupper) surveyNamespace(ctx context.Context, namespace string) (*survey, error) {
	if known := b.surveys[namespace]; known != nil {
		return known, nil
	}
	if err := b.findEarlierRequests(ctx); err != nil {
		return nil, err
	}
	s := &survey{pods: map[string]podFacts{}, owners: map[string]string{}}
	chosen, err := b.mayChoose(ctx, namespace)
	if err == nil && chosen {
		var page corev1.PodList
		err = b.eachPodPage(ctx, namespace, &page, func() {
			for i := range page.Items {
				b.addPod(s, &page.Items[i])
			}
		})
	}
	if err != nil {
		return nil, err
	}
	if b.surveys == nil {
		b.surveys = map[string]*survey{}
	}
	b.surveys[namespace] = s
	return s, nil
}

// mayChoose reports whether a Pod of the namespace may have volumes that the backup chooses. Unless
// that is the default their metadata tells, of which most namespaces have no annotation.
func (b *Backupper) mayChoose(ctx context.Context, namespace string) (chosen bool, err error) {
	if b.byDefault() {
		return true, nil
	}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err = b.eachPodPage(ctx, namespace, page, func() {
		for i := range page.Items {
			chosen = chosen || page.Items[i].Annotations[velerov1.AnnotationBackupVolumes] != ""
		}
	})
	return chosen, err
}

// eachPodPage calls take for each page of the Pods of a namespace.
func (a API) eachPodPage(ctx context.Context, namespace string, page client.ObjectList, take func()) error {
	for more := ""; ; {
		err := a.retryCall(ctx, "list Pods of namespace "+namespace, func() error {
			return a.Reader.List(ctx, page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(more))
		})
		if err != nil {
			return err
		}
		take()
		if more = page.GetContinue(); more == "" {
			return nil
		}
	}
}

// addPod adds a Pod to a survey.
func (b *Backupper) addPod(s *survey, pod *corev1.Pod) {
	facts := factsOf(pod)
	s.pods[pod.Name] = facts
	if !facts.isRunning() || b.Selects != nil && !b.Selects(pod) {
		return
	}
	chosen, _ := chooseVolumes(pod, b.byDefault(), b.Claims)
	for i := range chosen {
		v := &chosen[i]
		if v.claim == "" || !v.mounted || v.unfit != "" {
			continue
		}
		if owner := s.owners[v.claim]; owner == "" || pod.Name < owner {
			s.owners[v.claim] = pod.Name
		}
	}
}

func factsOf(pod *corev1.Pod) podFacts {
	return podFacts{name: pod.Name, uid: string(pod.UID), node: pod.Spec.NodeName, phase: pod.Status.Phase, leaves: pod.DeletionTimestamp != nil}
}

// isRunning reports whether a mover can reach the volumes of the Pod.
func (p *podFacts) isRunning() bool { return p.phase == corev1.PodRunning && p.node != "" && !p.leaves }

// findEarlierRequests finds the requests that earlier holders of the backup made.
func (b *Backupper) findEarlierRequests(ctx context.Context) error {
	if b.taken != nil {
		return nil
	}
	var list []velerov1.PodVolumeBackup
	err := b.retryCall(ctx, "list the PodVolumeBackups of the backup", func() (err error) {
		list, err = b.ListBackups(ctx, BackupLabels(string(b.Backup.UID)))
		return err
	})
	if err != nil {
		return err
	}
	b.taken, b.past = map[client.ObjectKey]string{}, map[string]map[string]struct{}{}
	for i := range list {
		pvb := &list[i]
		if claim := pvb.Annotations[velerov1.AnnotationPVCName]; claim != "" {
			b.taken[client.ObjectKey{Namespace: pvb.Spec.Pod.Namespace, Name: claim}] = pvb.Spec.Pod.Name
		}
		hash := pvb.Labels[LabelOperation]
		if b.past[hash] == nil {
			b.past[hash] = map[string]struct{}{}
		}
		b.past[hash][pvb.Spec.Volume] = struct{}{}
	}
	return nil
}

// ownerOf returns the Pod with which the data of a claim is or was taken; empty without one.
func (b *Backupper) ownerOf(s *survey, claim client.ObjectKey) string {
	return cmp.Or(b.taken[claim], s.owners[claim.Name])
}

// Mover is which program serves the requests.
type Mover string

// The movers.
const (
	MoverHoldfast Mover = "holdfast"
	MoverVelero   Mover = "velero"
)

// agents are the nodes on which Velero's node-agent runs.
type agents struct{ nodes []string }

// checkMover returns why no request for a volume on the node can be served; empty where one can. Of
// several node-agents and volume-mover one alone may serve the requests of a node.
func (b *Backupper) checkMover(ctx context.Context, node string) (string, error) {
	if err := b.findAgents(ctx); err != nil {
		return "", err
	}
	switch {
	case b.Mover == MoverVelero && !slices.Contains(b.agents.nodes, node):
		return fmt.Sprintf("no node-agent of Velero runs on node %s, and --volume-mover is %s", node, b.Mover), nil
	case b.Mover != MoverVelero && len(b.agents.nodes) > 0:
		return fmt.Sprintf("Velero's node-agent runs in namespace %s and would take the request: remove it, or set --volume-mover=%s", b.Namespace, MoverVelero), nil
	}
	return "", nil
}

// FindProblem returns why no request for a snapshot can be served, which any node may be; empty where one can.
func (b *Backupper) FindProblem(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.findAgents(ctx); err != nil {
		return "", err
	}
	switch {
	case b.Mover != MoverVelero:
		return b.checkMover(ctx, "")
	case len(b.agents.nodes) == 0:
		return fmt.Sprintf("no node-agent of Velero runs, and --volume-mover is %s", b.Mover), nil
	}
	return "", nil
}

// findAgents finds the nodes on which Velero's node-agent runs, once.
func (b *Backupper) findAgents(ctx context.Context) error {
	if b.agents == nil {
		nodes, err := b.listAgents(ctx)
		if err != nil {
			return err
		}
		b.agents = &agents{nodes}
	}
	return nil
}

// listAgents returns the nodes on which Velero's node-agent runs.
func (a API) listAgents(ctx context.Context) (nodes []string, err error) {
	var pods corev1.PodList
	err = a.retryCall(ctx, "list the Pods of Velero's node-agent", func() error {
		return a.Reader.List(ctx, &pods, client.InNamespace(a.Namespace), client.MatchingLabels{"role": "node-agent"})
	})
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes, err
}
