{{- /*
The sidecar for charts of your own; the same container as that of kustomize/sidecar. In the pod of a workload:

  metadata:
    labels:
      {{- include "plimsoll.sidecar.labels" . | nindent 8 }}
  spec:
    initContainers:
      {{- include "plimsoll.sidecar" .Values.plimsoll | nindent 8 }}
    containers:
      - name: assistant
        env:
          {{- include "plimsoll.sidecar.env" . | nindent 12 }}
    volumes:
      {{- include "plimsoll.sidecar.volumes" .Values.plimsoll | nindent 8 }}

The values that it takes, each of which may be absent: image, pullPolicy, settings (a map of settings and their values),
settingsName, rulesName and secretName (of a ConfigMap with settings, one with rules, a Secret with keys), resources.
*/ -}}
{{- define "plimsoll.sidecar.labels" -}}
plimsoll: sidecar
{{- end }}

{{- define "plimsoll.sidecar.env" -}}
- name: OPENAI_BASE_URL
  value: http://127.0.0.1:4080/v1
{{- end }}

{{- define "plimsoll.sidecar" -}}
- name: plimsoll
  image: {{ .image | default "plimsoll:0.1.0" }}
  imagePullPolicy: {{ .pullPolicy | default "IfNotPresent" }}
  # A sidecar: it stays beside the containers, ends after them, and a Job does not wait for it.
  restartPolicy: Always
  env:
    - name: PLIMSOLL_HOST
      value: 127.0.0.1
    - name: PLIMSOLL_PORT
      value: "4080"
    # The kubelet and Prometheus ask the pod's address.
    - name: PLIMSOLL_ADMIN_HOST
      value: 0.0.0.0
    - name: PLIMSOLL_ADMIN_PORT
      value: "4081"
    # It ends after the containers, so nothing is left to wait for. The pod's own grace period holds for both.
    - name: PLIMSOLL_DRAIN
      value: "5"
    - name: PLIMSOLL_RULES
      value: /etc/plimsoll/rules
    - name: PLIMSOLL_KEYS
      value: /etc/plimsoll/keys
    {{- range $name, $value := .settings }}
    - name: {{ $name }}
      value: {{ ternary (int64 $value) $value (kindIs "float64" $value) | toString | quote }}
    {{- end }}
  envFrom:
    - configMapRef:
        name: {{ .settingsName | default "plimsoll-settings" }}
        optional: true
  ports:
    - name: plimsoll-admin
      containerPort: 4081
      protocol: TCP
  # The containers start when this succeeds.
  startupProbe:
    httpGet:
      path: /readyz
      port: plimsoll-admin
    periodSeconds: 1
    timeoutSeconds: 2
    failureThreshold: 60
  readinessProbe:
    httpGet:
      path: /readyz
      port: plimsoll-admin
    periodSeconds: 5
    timeoutSeconds: 2
    failureThreshold: 2
  # A process that is busy counting must not be killed: six failures, a minute.
  livenessProbe:
    httpGet:
      path: /healthz
      port: plimsoll-admin
    periodSeconds: 10
    timeoutSeconds: 2
    failureThreshold: 6
  resources:
    {{- if .resources }}
    {{- toYaml .resources | nindent 4 }}
    {{- else }}
    requests:
      cpu: 50m
      memory: 192Mi
    limits:
      memory: 512Mi
    {{- end }}
  securityContext:
    allowPrivilegeEscalation: false
    capabilities:
      drop:
        - ALL
    readOnlyRootFilesystem: true
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    seccompProfile:
      type: RuntimeDefault
  volumeMounts:
    - name: plimsoll-rules
      mountPath: /etc/plimsoll/rules
      readOnly: true
    - name: plimsoll-keys
      mountPath: /etc/plimsoll/keys
      readOnly: true
    - name: plimsoll-tmp
      mountPath: /tmp
{{- end }}

{{- define "plimsoll.sidecar.volumes" -}}
- name: plimsoll-rules
  configMap:
    name: {{ .rulesName | default "plimsoll-rules" }}
    optional: true
- name: plimsoll-keys
  secret:
    secretName: {{ .secretName | default "plimsoll" }}
    optional: true
- name: plimsoll-tmp
  emptyDir:
    medium: Memory
    sizeLimit: 16Mi
{{- end }}
