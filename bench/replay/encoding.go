package main

import "encoding/binary"

// One object of a kind, in the form that its list holds.
type render func(dst []byte, enc encoding) []byte

// Source: k8s.io/apimachinery pkg/runtime/serializer/protobuf (protoEncodingPrefix).
var protobufMagic = []byte{'k', '8', 's', 0}

// Appends a watch event as it goes over the wire: a line of JSON, or a frame of protobuf, which is a length of four
// bytes, a WatchEvent, in it a runtime.Unknown, in it the object.
func appendEvent(dst []byte, enc encoding, resource *resource, eventType string, object render) []byte {
	if enc == jsonText {
		dst = append(dst, `{"type":"`...)
		dst = append(dst, eventType...)
		dst = append(dst, `","object":`...)
		dst = appendTyped(dst, resource, object)
		return append(dst, "}\n"...)
	}
	raw := object(nil, protobuf)
	var typeMeta []byte
	typeMeta = appendBytes(typeMeta, 1, []byte(resource.apiVersion))
	typeMeta = appendBytes(typeMeta, 2, []byte(resource.kind))
	unknown := append(make([]byte, 0, len(raw)+128), protobufMagic...)
	unknown = appendBytes(unknown, 1, typeMeta)
	unknown = appendBytes(unknown, 2, raw)
	unknown = appendBytes(unknown, 3, nil)
	unknown = appendBytes(unknown, 4, nil)
	extension := appendBytes(make([]byte, 0, len(unknown)+8), 1, unknown)
	event := appendBytes(make([]byte, 0, len(extension)+32), 1, []byte(eventType))
	event = appendBytes(event, 2, extension)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(event)))
	return append(dst, event...)
}

// Watches name the kind in each object. Lists do not, except those of metadata.
func appendTyped(dst []byte, resource *resource, object render) []byte {
	if resource.metadataOnly {
		return object(dst, jsonText)
	}
	dst = append(dst, `{"kind":"`...)
	dst = append(dst, resource.kind...)
	dst = append(dst, `","apiVersion":"`...)
	dst = append(dst, resource.apiVersion...)
	dst = append(dst, `",`...)
	brace := len(dst)
	dst = object(dst, jsonText)
	// The object's own opening brace is one too many.
	return append(dst[:brace], dst[brace+1:]...)
}

// A length-delimited field of protobuf.
func appendBytes(dst []byte, number int, value []byte) []byte {
	dst = append(dst, byte(number<<3|2))
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}
