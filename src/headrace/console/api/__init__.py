"""What an HTTP API is made of: routes, parameters, problems, schemas and the OpenAPI document.

Knows no topic and no view.
"""
