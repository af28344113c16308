package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// One watch. What is added goes out with the next flush, or when there is a lot of it.
type stream struct {
	writer   http.ResponseWriter
	resource *resource
	encoding encoding
	ended    <-chan struct{}
	pending  []byte
	failure  error
}

// The streams are flushed together after that many events, so that none runs ahead of the others by more: an API
// server flushes a watch whenever it has nothing more to say at that instant.
const eventsPerFlush = 64

// As much as is worth a write of its own.
const fullBuffer = 64 * 1024

func (s *stream) add(eventType string, object render) {
	s.pending = appendEvent(s.pending, s.encoding, s.resource, eventType, object)
	if len(s.pending) >= fullBuffer {
		s.write()
	}
}

func (s *stream) write() {
	if s.failure == nil {
		_, s.failure = s.writer.Write(s.pending)
	}
	s.pending = s.pending[:0]
}

func (s *stream) flush() {
	if len(s.pending) > 0 {
		s.write()
	}
	if s.failure == nil {
		s.failure = http.NewResponseController(s.writer).Flush()
	}
}

func (s *session) flush() {
	for _, stream := range s.streams {
		if len(stream.pending) > 0 {
			stream.flush()
		}
	}
}

func (s *session) failed() []string {
	failed := []string{}
	for _, stream := range s.streams {
		if stream.failure != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", stream.resource.path, stream.failure))
		}
	}
	return failed
}

// A bookmark has no more than a version, in whichever kind of object.
func bookmark(resource *resource, endsInitialEvents bool, version uint64) render {
	metadata := metav1.ObjectMeta{ResourceVersion: versionAt(version)}
	if endsInitialEvents {
		metadata.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return func(dst []byte, enc encoding) []byte {
		if enc == protobuf {
			encoded, _ := metadata.Marshal()
			return appendBytes(dst, 1, encoded)
		}
		made := metav1.PartialObjectMetadata{ObjectMeta: metadata}
		if resource.metadataOnly {
			made.TypeMeta = metav1.TypeMeta{Kind: resource.kind, APIVersion: resource.apiVersion}
		}
		encoded, _ := json.Marshal(&made)
		return append(dst, encoded...)
	}
}
