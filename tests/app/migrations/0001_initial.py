"""The tables of the test app."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("job_name", models.CharField(max_length=200)),
                ("job_id", models.CharField(max_length=200)),
                ("tenant_id", models.CharField(max_length=100, null=True)),
                ("key", models.CharField(db_index=True, max_length=200)),
                ("value", models.JSONField(null=True)),
                ("pid", models.IntegerField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("tenant_id", models.CharField(max_length=100)),
                ("number", models.CharField(max_length=50)),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
    ]
