//go:build kubernetes1.36

package main

import (
	core "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// Later versions wrap the object.
func versionedAttributes(attributes admission.Attributes, pod *core.Pod) *admission.VersionedAttributes {
	return &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: pod}
}
