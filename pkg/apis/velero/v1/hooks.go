package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// BackupHooks are commands run in Pods around their backup.
type BackupHooks struct {
	// +optional
	// +nullable
	Resources []BackupResourceHookSpec `json:"resources,omitempty"`
}

// BackupResourceHookSpec is one set of hooks and the objects it applies to.
type BackupResourceHookSpec struct {
	// Name of the set, for logs.
	Name string `json:"name"`
	// +optional
	// +nullable
	IncludedNamespaces []string `json:"includedNamespaces,omitempty"`
	// +optional
	// +nullable
	ExcludedNamespaces []string `json:"excludedNamespaces,omitempty"`
	// +optional
	// +nullable
	IncludedResources []string `json:"includedResources,omitempty"`
	// +optional
	// +nullable
	ExcludedResources []string `json:"excludedResources,omitempty"`
	// +optional
	// +nullable
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// PreHooks run before the object and its additional items are stored.
	// +optional
	PreHooks []BackupResourceHook `json:"pre,omitempty"`
	// PostHooks run after them.
	// +optional
	PostHooks []BackupResourceHook `json:"post,omitempty"`
}

// BackupResourceHook is one hook of a backup.
type BackupResourceHook struct {
	Exec *ExecHook `json:"exec"`
}

// HookErrorMode defines what a failed hook means.
//
// +kubebuilder:validation:Enum=Continue;Fail
type HookErrorMode string

// The error modes of a hook.
const (
	HookErrorModeContinue HookErrorMode = "Continue"
	HookErrorModeFail     HookErrorMode = "Fail"
)

// ExecHook runs a command in a container of the Pod being backed up.
type ExecHook struct {
	// Container is the container's name; empty is the Pod's first one.
	// +optional
	Container string `json:"container,omitempty"`
	// Command and its arguments; there is no shell.
	// +kubebuilder:validation:MinItems=1
	Command []string `json:"command"`
	// +optional
	OnError HookErrorMode `json:"onError,omitempty"`
	// Timeout of the command; zero is 30s.
	// +optional
	Timeout metav1.Duration `json:"timeout,omitempty"`
}

// RestoreHooks are commands run in Pods after they are restored.
type RestoreHooks struct {
	// +optional
	Resources []RestoreResourceHookSpec `json:"resources,omitempty"`
}

// RestoreResourceHookSpec is one set of hooks and the Pods it applies to.
type RestoreResourceHookSpec struct {
	// Name of the set, for logs.
	Name string `json:"name"`
	// +optional
	// +nullable
	IncludedNamespaces []string `json:"includedNamespaces,omitempty"`
	// +optional
	// +nullable
	ExcludedNamespaces []string `json:"excludedNamespaces,omitempty"`
	// +optional
	// +nullable
	IncludedResources []string `json:"includedResources,omitempty"`
	// +optional
	// +nullable
	ExcludedResources []string `json:"excludedResources,omitempty"`
	// +optional
	// +nullable
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// +optional
	PostHooks []RestoreResourceHook `json:"postHooks,omitempty"`
}

// RestoreResourceHook is one hook of a restore: exec or init.
type RestoreResourceHook struct {
	// +optional
	Exec *ExecRestoreHook `json:"exec,omitempty"`
	// +optional
	Init *InitRestoreHook `json:"init,omitempty"`
}

// ExecRestoreHook runs a command in a container of a restored Pod.
type ExecRestoreHook struct {
	// Container is the container's name; empty is the Pod's first one.
	// +optional
	Container string `json:"container,omitempty"`
	// Command and its arguments; there is no shell.
	// +kubebuilder:validation:MinItems=1
	Command []string `json:"command"`
	// +optional
	OnError HookErrorMode `json:"onError,omitempty"`
	// ExecTimeout of the command; zero is 30s.
	// +optional
	ExecTimeout metav1.Duration `json:"execTimeout,omitempty"`
	// WaitTimeout bounds the wait for the container; zero is the restore's itemOperationTimeout.
	// +optional
	WaitTimeout metav1.Duration `json:"waitTimeout,omitempty"`
	// WaitForReady waits for the container to be ready, not only running.
	// +optional
	// +nullable
	WaitForReady *bool `json:"waitForReady,omitempty"`
}

// InitRestoreHook adds init containers to a restored Pod.
type InitRestoreHook struct {
	// InitContainers are container objects, kept as they were written.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	InitContainers []runtime.RawExtension `json:"initContainers,omitempty"`
	// +optional
	Timeout metav1.Duration `json:"timeout,omitempty"`
}
