"""The deployed shape: functions-framework as a process, deliveries over HTTP."""
