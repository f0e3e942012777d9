// Package moverpod makes the Pods that move the data of volumes: where the kubelet has a volume, what the
// Pod runs, and the Secret with all that it needs, so that it asks no API server.
package moverpod

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Container is the name of the container of a mover Pod.
const Container = "mover"

// LabelMover is on what is made for a request, with what the mover Pod does.
const LabelMover = "holdfast.io/mover"

// Values of LabelMover.
const (
	ValueBackup   = "backup"
	ValueRestore  = "restore"
	ValueUpload   = "upload"
	ValueDownload = "download"
	ValueForget   = "forget"
)

// Paths in a mover Pod.
const (
	secretDir  = "/mover"
	cacheDir   = "/cache"
	volumeDir  = "/volume"
	resultFile = "/dev/termination-log"

	locationKey = "location.yaml"
	passwordKey = "password"
)

// gracePeriod is the time that a mover needs for a checkpoint after a signal to stop, in seconds.
const gracePeriod = 30

// Settings are what all mover Pods have in common.
type Settings struct {
	Namespace      string
	Image          string
	PullPolicy     corev1.PullPolicy
	ServiceAccount string
	Resources      corev1.ResourceRequirements
	// Environment are variables of every mover.
	Environment map[string]string
	// Authorities has certificate authorities that movers trust, if it is set.
	Authorities corev1.VolumeSource
}

// Mover is what one mover Pod does, for whom and where.
type Mover struct {
	// Name is that of the request, and of the Pod.
	Name string
	// Owners refer to the request.
	Owners []metav1.OwnerReference
	// Labels tell mover Pods apart.
	Labels map[string]string
	// Node is where the volume is, Directory is the volume. A mover without a volume runs on any node.
	Node, Directory string
	// Claim is the claim of its own namespace that a mover without a Directory mounts, as a block device with
	// Block. It is scheduled to one of Nodes; nil is any.
	Claim string
	Block bool
	Nodes *corev1.NodeSelector
	// Tolerations are those of a mover that is scheduled.
	Tolerations []corev1.Toleration
	// ReadOnly has the volume be mounted for reading.
	ReadOnly bool
	// Args are those of Upload, Restore, Forget or Maintain.
	Args []string
}

// Upload are the arguments of an upload. Without a Pod it is the volume of a CSI snapshot, which OperationID is of.
type Upload struct{ Namespace, Pod, Volume, ClaimUID, OperationID string }

// BuildArgs returns the command line.
func (u Upload) BuildArgs() []string {
	args := append([]string{"move", "upload"}, commonArgs(u.Namespace)...)
	args = append(args, "--create-repository")
	for _, option := range [][2]string{{"--pod", u.Pod}, {"--volume", u.Volume}, {"--source", volumeDir}, {"--claim-uid", u.ClaimUID}, {"--operation-id", u.OperationID}} {
		if option[1] != "" {
			args = append(args, option[:]...)
		}
	}
	return args
}

// Restore are the arguments of a restore.
type Restore struct {
	Namespace, Snapshot, DoneFile string
	Overwrite                     bool
	// Paths are what is restored alone.
	Paths []string
}

// BuildArgs returns the command line.
func (r Restore) BuildArgs() []string {
	args := append([]string{"move", "restore"}, commonArgs(r.Namespace)...)
	args = append(args, "--snapshot", r.Snapshot, "--target", volumeDir)
	if r.DoneFile != "" {
		args = append(args, "--done-file", r.DoneFile)
	}
	if r.Overwrite {
		args = append(args, "--overwrite")
	}
	for _, path := range r.Paths {
		args = append(args, "--path="+strings.ReplaceAll(path, "$", "$$")) // the kubelet replaces $(VARIABLE), and $$ by $
	}
	return args
}

// Forget are the arguments that remove snapshots.
type Forget struct {
	Namespace string
	Snapshots []string
}

// BuildArgs returns the command line.
func (f Forget) BuildArgs() []string {
	args := append([]string{"forget"}, commonArgs(f.Namespace)...)
	for _, id := range f.Snapshots {
		args = append(args, "--snapshot", id)
	}
	return args
}

func commonArgs(namespace string) []string {
	return []string{
		"--location", secretDir + "/" + locationKey, "--password-file", secretDir + "/" + passwordKey, "--namespace", namespace,
		"--cache-dir", cacheDir, "--result-file", resultFile,
	}
}

// BuildPod returns the mover Pod. It runs as root, since a volume has files of any user, with no more
// capabilities than reading and writing these takes, and with none if there is no volume.
func BuildPod(s Settings, m Mover) *corev1.Pod {
	args := m.Args
	if limit := s.Resources.Limits.Memory().Value() >> 20; limit > 0 {
		args = append(args, "--memory-mib", strconv.FormatInt(max(limit/2, 1), 10))
	}
	meta := metav1.ObjectMeta{
		Namespace: s.Namespace, Name: m.Name, Labels: m.Labels, OwnerReferences: m.Owners,
	}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		NodeName: m.Node, ServiceAccountName: s.ServiceAccount, AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To(int64(gracePeriod)),
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(0)), RunAsGroup: ptr.To(int64(0)), RunAsNonRoot: ptr.To(false)},
		Volumes: []corev1.Volume{
			{Name: "mover", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: meta.Name, DefaultMode: ptr.To(int32(0o400))}}},
			{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
		Containers: []corev1.Container{{
			Name: Container, Image: s.Image, ImagePullPolicy: s.PullPolicy, Args: args, Resources: s.Resources,
			Env: []corev1.EnvVar{{Name: "TMPDIR", Value: cacheDir}}, // nothing else can be written to
			SecurityContext: &corev1.SecurityContext{
				ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
				Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "mover", MountPath: secretDir, ReadOnly: true},
				{Name: "cache", MountPath: cacheDir},
			},
		}},
	}}
	switch {
	case m.Directory != "":
		pod.Spec.Tolerations = tolerateTaints()
		addVolume(&pod.Spec, m, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: m.Directory, Type: ptr.To(corev1.HostPathDirectory)}})
	case m.Claim != "":
		pod.Spec.Tolerations = m.Tolerations
		if m.Nodes != nil {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: m.Nodes}}
		}
		addVolume(&pod.Spec, m, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: m.Claim}})
	}
	addEnvironment(&pod.Spec, s, meta.Name)
	return pod
}

// SelectNode selects one node by its name.
func SelectNode(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
	}}}}
}

// addVolume gives a mover Pod the volume, and the rights to its files.
func addVolume(spec *corev1.PodSpec, m Mover, source corev1.VolumeSource) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "volume", VolumeSource: source})
	c := &spec.Containers[0]
	c.SecurityContext.Capabilities.Add = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID"}
	// The files of a volume have the labels of the Pod that it belongs to.
	c.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
	if m.Block {
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "volume", DevicePath: volumeDir}}
		return
	}
	mount := corev1.VolumeMount{Name: "volume", MountPath: volumeDir, ReadOnly: m.ReadOnly}
	if m.Directory != "" {
		mount.MountPropagation = ptr.To(corev1.MountPropagationHostToContainer)
	}
	c.VolumeMounts = append(c.VolumeMounts, mount)
}

// goneTolerance is how long a mover Pod outlives its node, in seconds.
const goneTolerance = 300

// tolerateTaints returns tolerations of all taints, since the volume is on this node whatever its taints
// are. A node that does not answer is given up in time: nobody else deletes the Pod. The first toleration
// that matches a taint counts.
func tolerateTaints() (all []corev1.Toleration) {
	for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
		all = append(all, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(goneTolerance)),
		})
	}
	return append(all, corev1.Toleration{Operator: corev1.TolerationOpExists})
}

// BuildLabels returns those of a mover Pod: what it does, and its request, if it has one, under Velero's label.
// No backup takes the Pod or its Secret, which has keys of the bucket.
func BuildLabels(value, request string) map[string]string {
	labels := map[string]string{LabelMover: value, velerov1.LabelExcludeFromBackup: "true"}
	switch value {
	case ValueBackup:
		labels[velerov1.LabelPodVolumeBackup] = velerov1.LabelValue(request)
	case ValueRestore:
		labels[velerov1.LabelPodVolumeRestore] = velerov1.LabelValue(request)
	case ValueUpload:
		labels["velero.io/data-upload"] = velerov1.LabelValue(request)
	case ValueDownload:
		labels["velero.io/data-download"] = velerov1.LabelValue(request)
	}
	return labels
}
